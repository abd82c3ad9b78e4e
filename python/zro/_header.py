"""What include/zro.h declares, for ctypes, under the same names.  Written by scripts/bindings: change the header instead."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64,
                    c_void_p)

ZRO_ALL_PARAMS = c_size_t(-1).value
ZRO_MACHINE_AUTO = -1
ZRO_TICKET_BYTES = 256
ZRO_VERSION = "0.2.0"
ZRO_OK = 0
ZRO_ERR_INVALID = 1
ZRO_ERR_STATE = 2
ZRO_ERR_MEMORY = 3
ZRO_ERR_SYSTEM = 4
ZRO_ERR_FORMAT = 5
ZRO_ERR_UNSUPPORTED = 6
ZRO_ERR_MISMATCH = 7
ZRO_ERR_PEER = 8
ZRO_ERR_LOST = 9
ZRO_ERR_TIMEOUT = 10


class zro_abi_entry(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("bytes", c_size_t),
    )


ZRO_SAME = -1
ZRO_F32 = 0
ZRO_F64 = 1
ZRO_BF16 = 2
ZRO_F16 = 3
ZRO_I8 = 4
ZRO_U8 = 5
ZRO_I32 = 6
ZRO_I64 = 7
ZRO_SUM = 0
ZRO_AVG = 1
ZRO_MIN = 2
ZRO_MAX = 3
ZRO_ALL = -1
ZRO_KERNELS_AUTO = 0
ZRO_KERNELS_BASE = 1
ZRO_KERNELS_AVX2 = 2
ZRO_KERNELS_AVX512 = 3
ZRO_OFF = 0
ZRO_ON = 1
ZRO_LOG_OFF = 0
ZRO_LOG_WARN = 1
ZRO_LOG_INFO = 2
ZRO_LOG_DEBUG = 3
zro_log_fn = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class zro_settings(Structure):
    _fields_ = (
        ("threads", c_uint32),
        ("kernels", c_int),
        ("fast", c_int),
        ("log_level", c_int),
        ("log", zro_log_fn),
        ("log_user", c_void_p),
        ("warn_ms", c_uint64),
        ("reserved", c_uint64 * 3),
    )


ZRO_LINK_OPEN = 0
ZRO_LINK_DONE = 1
ZRO_LINK_FAILED = 2


class zro_link_request(Structure):
    _fields_ = (
        ("state", c_int),
        ("reserved", c_uint32),
        ("bytes", c_size_t),
        ("text", c_char_p),
        ("own", c_void_p * 2),
    )


class zro_link(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("self", c_void_p),
        ("message_bytes", c_size_t),
        ("channels", c_uint64),
        ("one_thread", c_int),
        ("send", CFUNCTYPE(None, c_void_p, c_int, c_uint64, c_void_p, c_size_t, c_int, POINTER(zro_link_request))),
        ("recv", CFUNCTYPE(None, c_void_p, c_int, c_uint64, c_void_p, c_size_t, POINTER(zro_link_request))),
        ("poll", CFUNCTYPE(None, c_void_p)),
        ("cancel", CFUNCTYPE(None, c_void_p, POINTER(zro_link_request))),
        ("number", CFUNCTYPE(c_uint64, c_void_p)),
        ("close", CFUNCTYPE(None, c_void_p)),
    )


class zro_group_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("settings", zro_settings),
        ("timeout_ms", c_uint64),
        ("cells", POINTER(c_int32)),
        ("machine", c_int64),
        ("link", POINTER(zro_link)),
        ("trace", c_char_p),
    )


zro_rank_fn = CFUNCTYPE(c_int, c_void_p, c_void_p)
zro_work_fn = CFUNCTYPE(c_int, c_void_p)
ZRO_MEMORY_EACH = 0
ZRO_MEMORY_ONCE = 1
ZRO_LAYOUT_DENSE = 0
ZRO_LAYOUT_STRIDED = 1
ZRO_LAYOUT_SPARSE = 2
ZRO_MAX_DIMS = 8


class zro_param(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("grad", c_void_p),
        ("grad_present", c_uint32),
        ("requires_grad", c_uint32),
        ("dtype", c_int),
        ("grad_dtype", c_int),
        ("device", c_int32),
        ("layout", c_int),
        ("n_dims", c_uint32),
        ("reserved32", c_uint32),
        ("name", c_char_p),
        ("shape", c_size_t * ZRO_MAX_DIMS),
        ("memory", c_void_p),
        ("reserved", c_uint64 * 3),
    )


class zro_alloc_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("data", c_int),
        ("grads", c_int),
        ("data_kind", c_int),
    )


ZRO_PARTITION_AUTO = 0
ZRO_PARTITION_FLAT = 1
ZRO_PARTITION_GREEDY = 2
ZRO_PARTITION_BUCKETS = 3
ZRO_PARTITION_GIVEN = 4


class zro_range(Structure):
    _fields_ = (
        ("param", c_size_t),
        ("first", c_size_t),
        ("count", c_size_t),
        ("group", c_size_t),
        ("bucket", c_size_t),
        ("owner", c_int32),
        ("reserved32", c_uint32),
        ("reserved", c_uint64 * 2),
    )


class zro_plan_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("partition", c_int),
        ("shard_buckets", c_int),
        ("bucket_params", POINTER(c_size_t)),
        ("bucket_lengths", POINTER(c_size_t)),
        ("n_buckets", c_size_t),
    )


class zro_move(Structure):
    _fields_ = (
        ("param", c_size_t),
        ("first", c_size_t),
        ("count", c_size_t),
        ("from", c_int32),
        ("to", c_int32),
        ("reserved", c_uint64 * 2),
    )


zro_hook_fn = CFUNCTYPE(c_int, c_void_p, c_void_p)


class zro_ddp_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("bucket_bytes", c_size_t),
        ("find_unused", c_int),
        ("static_graph", c_int),
        ("gradient_as_bucket_view", c_int),
        ("broadcast", c_int),
        ("broadcast_buffers", c_int),
        ("weighted", c_int),
        ("buffers", POINTER(zro_param)),
        ("n_buffers", c_size_t),
        ("hook", zro_hook_fn),
        ("hook_user", c_void_p),
        ("bucket_limits", POINTER(c_size_t)),
        ("n_bucket_limits", c_size_t),
        ("stage_grads", c_int),
    )


class zro_sample_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("drop_last", c_int),
        ("shuffle", c_int),
        ("seed", c_uint64),
        ("epoch", c_uint64),
    )


class zro_hook_inner(Structure):
    _fields_ = (
        ("hook", zro_hook_fn),
        ("user", c_void_p),
    )


ZRO_INITIAL_RANKS = 0
ZRO_REMAINING_RANKS = 1


class zro_join_info(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("iterations", c_uint64),
        ("ranks", c_int32),
        ("n_active", c_int32),
        ("lowest", c_int32),
        ("highest", c_int32),
        ("is_active", c_int32),
        ("divide_by", c_int),
        ("settings", c_void_p),
    )


zro_shadow_fn = CFUNCTYPE(c_int, c_void_p, POINTER(zro_join_info))
zro_post_fn = CFUNCTYPE(c_int, c_void_p, POINTER(zro_join_info), c_int)


class zro_joinable(Structure):
    _fields_ = (
        ("shadow", zro_shadow_fn),
        ("post", zro_post_fn),
        ("user", c_void_p),
        ("joiner", c_void_p),
        ("reserved", c_uint64 * 4),
    )


class zro_join_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("enable", c_int),
        ("throw_on_early_termination", c_int),
        ("divide_by", c_int),
        ("settings", c_void_p),
    )


class zro_sgd_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("momentum", c_double),
        ("dampening", c_double),
        ("weight_decay", c_double),
        ("nesterov", c_int),
        ("maximize", c_int),
    )


class zro_adam_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("amsgrad", c_int),
        ("decoupled_weight_decay", c_int),
        ("maximize", c_int),
    )


class zro_adamw_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("amsgrad", c_int),
        ("maximize", c_int),
    )


class zro_adagrad_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("lr_decay", c_double),
        ("weight_decay", c_double),
        ("initial_accumulator_value", c_double),
        ("eps", c_double),
        ("maximize", c_int),
    )


class zro_adadelta_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("rho", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("maximize", c_int),
    )


class zro_adamax_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("maximize", c_int),
    )


class zro_rmsprop_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("alpha", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("momentum", c_double),
        ("centered", c_int),
        ("maximize", c_int),
    )


class zro_rprop_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("eta_minus", c_double),
        ("eta_plus", c_double),
        ("step_min", c_double),
        ("step_max", c_double),
        ("maximize", c_int),
    )


class zro_asgd_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("lambd", c_double),
        ("alpha", c_double),
        ("t0", c_double),
        ("weight_decay", c_double),
        ("maximize", c_int),
    )


class zro_nadam_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("momentum_decay", c_double),
        ("decoupled_weight_decay", c_int),
        ("maximize", c_int),
    )


class zro_radam_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("decoupled_weight_decay", c_int),
        ("maximize", c_int),
    )


class zro_value(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("value", c_double),
    )


class zro_param_group(Structure):
    _fields_ = (
        ("params", POINTER(zro_param)),
        ("index", POINTER(c_size_t)),
        ("n", c_size_t),
        ("config", c_void_p),
        ("values", POINTER(zro_value)),
        ("n_values", c_size_t),
        ("owners", POINTER(c_int32)),
        ("reserved", c_uint64 * 3),
    )


ZRO_NEAREST = 0
ZRO_STOCHASTIC = 1
ZRO_OVERLAP_OFF = 0
ZRO_OVERLAP_AFTER_LAST = 1
ZRO_OVERLAP_INTERLEAVED = 2


class zro_optim_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("settings", zro_settings),
        ("masters", c_int),
        ("rounding", c_int),
        ("seed", c_uint64),
        ("clip_norm", c_double),
        ("clip_norm_type", c_double),
        ("clip_value", c_double),
        ("skip_non_finite", c_int),
        ("loss_scale", c_int),
        ("scale_init", c_double),
        ("scale_growth", c_double),
        ("scale_backoff", c_double),
        ("growth_interval", c_uint32),
        ("plan", POINTER(zro_plan_config)),
        ("parameters_as_bucket_view", c_int),
        ("ddp", c_void_p),
        ("overlap", c_int),
    )


zro_closure_fn = CFUNCTYPE(c_int, c_void_p, POINTER(c_double))
ZRO_ZERO_CLEAR = 0
ZRO_ZERO_LEAVE = 1
ZRO_ZERO_KEEP = 2


class zro_slot(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("first", c_size_t),
        ("count", c_size_t),
        ("dtype", c_int),
        ("present", c_uint32),
        ("reserved", c_uint64 * 4),
    )


class zro_step_info(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("scale", c_double),
        ("growth_tracker", c_uint32),
        ("skipped", c_uint32),
        ("n_skipped", c_uint64),
        ("n_steps", c_uint64),
        ("n_updated", c_uint64),
        ("norm", c_double),
        ("state_bytes", c_uint64),
    )


class zro_progress(Structure):
    _fields_ = (
        ("steps", c_uint64),
        ("scale", c_double),
        ("growth_tracker", c_uint32),
        ("reserved32", c_uint32),
        ("n_skipped", c_uint64),
        ("reserved", c_uint64 * 3),
    )


class zro_one_cycle_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("max_lr", c_double),
        ("total_steps", c_uint64),
        ("pct_start", c_double),
        ("linear", c_int),
        ("three_phase", c_int),
        ("cycle_momentum", c_int),
        ("base_momentum", c_double),
        ("max_momentum", c_double),
        ("div_factor", c_double),
        ("final_div_factor", c_double),
    )


class zro_plateau_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("maximize", c_int),
        ("factor", c_double),
        ("patience", c_uint64),
        ("threshold", c_double),
        ("threshold_absolute", c_int),
        ("cooldown", c_uint64),
        ("min_lr", c_double),
        ("eps", c_double),
    )


zro_lr_fn = CFUNCTYPE(c_double, c_void_p, c_size_t, c_uint64)


class zro_save_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("schedules", POINTER(c_void_p)),
        ("n_schedules", c_size_t),
        ("numbers", POINTER(zro_value)),
        ("n_numbers", c_size_t),
    )


class zro_lbfgs_config(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("lr", c_double),
        ("max_iter", c_uint32),
        ("max_eval", c_uint32),
        ("tolerance_grad", c_double),
        ("tolerance_change", c_double),
        ("history_size", c_uint32),
        ("strong_wolfe", c_int),
        ("settings", zro_settings),
    )


class zro_stats(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("operations", c_uint64),
        ("direct_bytes", c_uint64),
        ("link_bytes", c_uint64),
        ("link_messages", c_uint64),
        ("waits", c_uint64),
        ("sleeps", c_uint64),
        ("wait_ns", c_uint64),
        ("heap_bytes", c_uint64),
        ("heap_peak_bytes", c_uint64),
        ("shared_bytes", c_uint64),
        ("control_bytes", c_uint64),
        ("deliveries", c_uint64),
        ("state_bytes", c_uint64),
        ("passes", c_uint64),
        ("allocations", c_uint64),
    )


ZRO_REAL = 0
ZRO_FLAG = 1
ZRO_OPEN_LOW = 1
ZRO_OPEN_HIGH = 2


class zro_hyper(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("kind", c_int),
        ("open", c_uint32),
        ("init", c_double),
        ("low", c_double),
        ("high", c_double),
        ("offset", c_size_t),
        ("torch", c_char_p),
    )


ZRO_SLOT_ARRAY = 0
ZRO_SLOT_NUMBER = 1
ZRO_SLOT_COUNT = 2
ZRO_MAX_SLOTS = 8
ZRO_MAX_SCALARS = 16


class zro_slot_spec(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("kind", c_int),
        ("from_creation", c_int),
        ("init", c_double),
        ("init_value", c_char_p),
        ("only_with", c_char_p),
    )


class zro_rule_step(Structure):
    _fields_ = (
        ("values", POINTER(c_double)),
        ("numbers", POINTER(c_double)),
        ("fresh", c_uint32),
        ("dtype", c_int),
        ("user", c_void_p),
        ("scalars", POINTER(c_double)),
    )


class zro_rule_tile(Structure):
    _fields_ = (
        ("count", c_size_t),
        ("grad", c_void_p),
        ("data", c_void_p),
        ("slots", POINTER(c_void_p)),
        ("scalars", c_void_p),
        ("user", c_void_p),
        ("param", c_size_t),
        ("first", c_size_t),
    )


class zro_rule(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("torch", c_char_p),
        ("hypers", POINTER(zro_hyper)),
        ("n_hypers", c_size_t),
        ("slots", POINTER(zro_slot_spec)),
        ("n_slots", c_size_t),
        ("config_bytes", c_size_t),
        ("whole", c_int),
        ("check", CFUNCTYPE(c_int, POINTER(c_double))),
        ("begin", CFUNCTYPE(None, POINTER(c_double), c_size_t, c_void_p)),
        ("prepare", CFUNCTYPE(None, POINTER(zro_rule_step))),
        ("f32", CFUNCTYPE(None, POINTER(zro_rule_tile))),
        ("f64", CFUNCTYPE(None, POINTER(zro_rule_tile))),
    )


# Name: (result, arguments).  MUST: the result is a status at which the caller must look.
MUST = object()
FUNCTIONS = {
    "zro_last_error": (c_char_p, ()),
    "zro_error_set": (c_int, (c_int, c_char_p)),
    "zro_must": (None, (c_int,)),
    "zro_status_name": (c_char_p, (c_int,)),
    "zro_status_text": (c_char_p, (c_int,)),
    "zro_version": (c_char_p, ()),
    "zro_abi": (POINTER(zro_abi_entry), (POINTER(c_size_t),)),
    "zro_dtype_bytes": (c_size_t, (c_int,)),
    "zro_dtype_name": (c_char_p, (c_int,)),
    "zro_convert": (MUST, (c_void_p, c_int, c_void_p, c_int, c_size_t)),
    "zro_link_init": (None, (POINTER(zro_link),)),
    "zro_group_config_init": (None, (POINTER(zro_group_config),)),
    "zro_group_create_env": (MUST, (POINTER(zro_group_config), POINTER(c_void_p))),
    "zro_group_ticket": (MUST, (POINTER(zro_group_config), c_int, c_int, c_void_p)),
    "zro_group_ticket_drop": (None, (c_void_p,)),
    "zro_group_create_tickets": (MUST, (POINTER(zro_group_config), c_int, c_int, c_void_p, POINTER(c_void_p))),
    "zro_group_create_sub": (MUST, (c_void_p, POINTER(c_int), c_int, POINTER(c_void_p))),
    "zro_group_create_members": (MUST, (c_void_p, POINTER(c_int), c_int, POINTER(c_void_p))),
    "zro_group_duplicate": (MUST, (c_void_p, POINTER(c_void_p))),
    "zro_group_destroy": (None, (c_void_p,)),
    "zro_group_rank": (c_int, (c_void_p,)),
    "zro_group_size": (c_int, (c_void_p,)),
    "zro_group_label": (c_int, (c_void_p, c_int)),
    "zro_group_status": (MUST, (c_void_p,)),
    "zro_group_stop_requested": (MUST, (c_void_p, c_int, POINTER(c_int))),
    "zro_spawn": (MUST, (POINTER(zro_group_config), c_int, zro_rank_fn, c_void_p)),
    "zro_spawn_threads": (MUST, (POINTER(zro_group_config), c_int, zro_rank_fn, c_void_p)),
    "zro_barrier": (MUST, (c_void_p,)),
    "zro_all_reduce": (MUST, (c_void_p, c_void_p, c_size_t, c_int, c_int)),
    "zro_all_reduce_into": (MUST, (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int)),
    "zro_reduce": (MUST, (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int)),
    "zro_reduce_scatter": (MUST, (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int)),
    "zro_reduce_scatter_v": (MUST, (c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_int, c_int)),
    "zro_broadcast": (MUST, (c_void_p, c_void_p, c_size_t, c_int, c_int)),
    "zro_broadcast_bytes": (MUST, (c_void_p, c_void_p, c_size_t, c_int, POINTER(c_void_p), POINTER(c_size_t))),
    "zro_bytes_free": (None, (c_void_p,)),
    "zro_gather": (MUST, (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int)),
    "zro_gather_v": (MUST, (c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_int, c_int)),
    "zro_all_gather": (MUST, (c_void_p, c_void_p, c_void_p, c_size_t, c_int)),
    "zro_all_gather_v": (MUST, (c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_int)),
    "zro_submit": (MUST, (c_void_p, zro_work_fn, c_void_p, POINTER(c_void_p))),
    "zro_work_test": (MUST, (c_void_p, POINTER(c_int))),
    "zro_work_wait": (MUST, (c_void_p,)),
    "zro_work_destroy": (None, (c_void_p,)),
    "zro_memory_alloc": (MUST, (c_void_p, c_int, c_size_t, POINTER(c_void_p))),
    "zro_memory_data": (c_void_p, (c_void_p,)),
    "zro_memory_peer": (c_void_p, (c_void_p, c_int)),
    "zro_memory_free": (None, (c_void_p,)),
    "zro_param_init": (None, (POINTER(zro_param),)),
    "zro_param_make": (None, (POINTER(zro_param), c_char_p, c_int, c_void_p, c_void_p, c_uint32, POINTER(c_size_t))),
    "zro_param_count": (c_size_t, (POINTER(zro_param),)),
    "zro_param_set_grad": (None, (POINTER(zro_param), c_void_p)),
    "zro_params_mark_grads": (None, (POINTER(zro_param), c_size_t)),
    "zro_alloc_config_init": (None, (POINTER(zro_alloc_config),)),
    "zro_params_alloc": (MUST, (c_void_p, POINTER(zro_param), c_size_t, POINTER(zro_alloc_config))),
    "zro_params_free": (None, (POINTER(zro_param), c_size_t)),
    "zro_params_all_reduce": (MUST, (c_void_p, POINTER(zro_param), c_size_t, c_int)),
    "zro_params_hash": (MUST, (POINTER(zro_param), c_size_t, POINTER(c_uint64))),
    "zro_plan_config_init": (None, (POINTER(zro_plan_config),)),
    "zro_plan_create": (MUST, (POINTER(zro_param_group), c_size_t, c_int, POINTER(zro_plan_config), POINTER(c_void_p))),
    "zro_plan_add_group": (MUST, (c_void_p, POINTER(zro_param_group))),
    "zro_plan_destroy": (None, (c_void_p,)),
    "zro_plan_ranks": (c_int, (c_void_p,)),
    "zro_plan_params": (c_size_t, (c_void_p,)),
    "zro_plan_buckets": (c_size_t, (c_void_p,)),
    "zro_plan_elements": (c_size_t, (c_void_p, c_int)),
    "zro_plan_owner": (MUST, (c_void_p, c_size_t, c_size_t, POINTER(c_int))),
    "zro_plan_ranges": (MUST, (c_void_p, c_int, POINTER(POINTER(zro_range)), POINTER(c_size_t))),
    "zro_plan_find": (MUST, (c_void_p, c_char_p, POINTER(c_size_t))),
    "zro_plan_intersect": (MUST, (c_void_p, c_void_p, POINTER(zro_move), c_size_t, POINTER(c_size_t))),
    "zro_buckets_form": (MUST, (POINTER(zro_param), POINTER(c_size_t), c_size_t, POINTER(c_size_t), c_size_t, POINTER(c_size_t),
        POINTER(c_size_t), POINTER(c_size_t), POINTER(c_size_t))),
    "zro_ddp_config_init": (None, (POINTER(zro_ddp_config),)),
    "zro_ddp_create": (MUST, (c_void_p, POINTER(zro_param), c_size_t, POINTER(zro_ddp_config), POINTER(c_void_p))),
    "zro_ddp_destroy": (None, (c_void_p,)),
    "zro_ddp_forward": (MUST, (c_void_p,)),
    "zro_ddp_grad_ready": (MUST, (c_void_p, c_size_t)),
    "zro_ddp_grads_ready": (MUST, (c_void_p, POINTER(c_size_t), c_size_t)),
    "zro_ddp_unused": (MUST, (c_void_p, c_size_t)),
    "zro_ddp_backward_end": (MUST, (c_void_p,)),
    "zro_ddp_shadow": (MUST, (c_void_p,)),
    "zro_ddp_no_sync": (MUST, (c_void_p, c_int)),
    "zro_ddp_set_weight": (MUST, (c_void_p, c_double)),
    "zro_ddp_average": (MUST, (c_void_p,)),
    "zro_ddp_check": (MUST, (c_void_p,)),
    "zro_ddp_set_hook": (MUST, (c_void_p, zro_hook_fn, c_void_p)),
    "zro_ddp_buckets": (MUST, (c_void_p, POINTER(POINTER(c_size_t)), POINTER(POINTER(c_size_t)), POINTER(c_size_t))),
    "zro_sample_config_init": (None, (POINTER(zro_sample_config),)),
    "zro_sample_count": (c_size_t, (c_size_t, c_int, c_int)),
    "zro_sample_indices": (MUST, (c_size_t, c_int, c_int, POINTER(zro_sample_config), c_size_t, c_size_t, POINTER(c_size_t))),
    "zro_bucket_index": (c_size_t, (c_void_p,)),
    "zro_bucket_is_last": (c_int, (c_void_p,)),
    "zro_bucket_buffer": (c_void_p, (c_void_p, POINTER(c_size_t), POINTER(c_int))),
    "zro_bucket_params": (c_size_t, (c_void_p,)),
    "zro_bucket_param": (c_size_t, (c_void_p, c_size_t)),
    "zro_bucket_grad": (c_void_p, (c_void_p, c_size_t, POINTER(c_size_t))),
    "zro_bucket_set_buffer": (None, (c_void_p, c_void_p, c_int)),
    "zro_bucket_group": (c_void_p, (c_void_p,)),
    "zro_bucket_divisor": (c_double, (c_void_p,)),
    "zro_hook_all_reduce": (MUST, (c_void_p, c_void_p)),
    "zro_hook_none": (MUST, (c_void_p, c_void_p)),
    "zro_hook_bf16": (MUST, (c_void_p, c_void_p)),
    "zro_hook_f16": (MUST, (c_void_p, c_void_p)),
    "zro_hook_bf16_wrap": (MUST, (c_void_p, c_void_p)),
    "zro_hook_f16_wrap": (MUST, (c_void_p, c_void_p)),
    "zro_join_info_init": (None, (POINTER(zro_join_info),)),
    "zro_joinable_init": (None, (POINTER(zro_joinable),)),
    "zro_ddp_joinable": (MUST, (c_void_p, POINTER(zro_joinable))),
    "zro_join_config_init": (None, (POINTER(zro_join_config),)),
    "zro_join_create": (MUST, (c_void_p, POINTER(zro_joinable), c_size_t, POINTER(zro_join_config), POINTER(c_void_p))),
    "zro_join_destroy": (None, (c_void_p,)),
    "zro_join_notify": (MUST, (c_void_p, c_size_t)),
    "zro_join_run": (MUST, (c_void_p,)),
    "zro_join_get_info": (MUST, (c_void_p, POINTER(zro_join_info))),
    "zro_rule_find": (POINTER(zro_rule), (c_char_p,)),
    "zro_rule_none": (POINTER(zro_rule), ()),
    "zro_rule_sgd": (POINTER(zro_rule), ()),
    "zro_rule_adam": (POINTER(zro_rule), ()),
    "zro_rule_adamw": (POINTER(zro_rule), ()),
    "zro_rule_adagrad": (POINTER(zro_rule), ()),
    "zro_rule_adadelta": (POINTER(zro_rule), ()),
    "zro_rule_adamax": (POINTER(zro_rule), ()),
    "zro_rule_rmsprop": (POINTER(zro_rule), ()),
    "zro_rule_rprop": (POINTER(zro_rule), ()),
    "zro_rule_asgd": (POINTER(zro_rule), ()),
    "zro_rule_nadam": (POINTER(zro_rule), ()),
    "zro_rule_radam": (POINTER(zro_rule), ()),
    "zro_sgd_config_init": (None, (POINTER(zro_sgd_config),)),
    "zro_adam_config_init": (None, (POINTER(zro_adam_config),)),
    "zro_adamw_config_init": (None, (POINTER(zro_adamw_config),)),
    "zro_adagrad_config_init": (None, (POINTER(zro_adagrad_config),)),
    "zro_adadelta_config_init": (None, (POINTER(zro_adadelta_config),)),
    "zro_adamax_config_init": (None, (POINTER(zro_adamax_config),)),
    "zro_rmsprop_config_init": (None, (POINTER(zro_rmsprop_config),)),
    "zro_rprop_config_init": (None, (POINTER(zro_rprop_config),)),
    "zro_asgd_config_init": (None, (POINTER(zro_asgd_config),)),
    "zro_nadam_config_init": (None, (POINTER(zro_nadam_config),)),
    "zro_radam_config_init": (None, (POINTER(zro_radam_config),)),
    "zro_param_group_init": (None, (POINTER(zro_param_group),)),
    "zro_optim_config_init": (None, (POINTER(zro_optim_config),)),
    "zro_optim_create": (MUST, (c_void_p, POINTER(zro_param_group), c_size_t, POINTER(zro_rule), c_void_p,
        POINTER(zro_optim_config), POINTER(c_void_p))),
    "zro_optim_destroy": (None, (c_void_p,)),
    "zro_optim_joinable": (MUST, (c_void_p, POINTER(zro_joinable))),
    "zro_optim_add_param_group": (MUST, (c_void_p, POINTER(zro_param_group))),
    "zro_optim_plan": (c_void_p, (c_void_p,)),
    "zro_optim_step": (MUST, (c_void_p, c_void_p)),
    "zro_optim_set_user": (MUST, (c_void_p, c_void_p)),
    "zro_optim_step_local": (MUST, (c_void_p, c_void_p)),
    "zro_optim_publish": (MUST, (c_void_p,)),
    "zro_param_publish": (MUST, (c_void_p, c_size_t, c_int)),
    "zro_optim_describe": (c_size_t, (c_void_p, c_void_p, c_size_t)),
    "zro_optim_step_closure": (MUST, (c_void_p, zro_closure_fn, c_void_p, c_void_p, POINTER(c_double))),
    "zro_optim_zero_grad": (MUST, (c_void_p, c_int)),
    "zro_optim_groups": (c_size_t, (c_void_p,)),
    "zro_optim_params": (c_size_t, (c_void_p,)),
    "zro_optim_values": (c_size_t, (c_void_p,)),
    "zro_optim_value_name": (c_char_p, (c_void_p, c_size_t)),
    "zro_optim_get_value": (MUST, (c_void_p, c_size_t, c_char_p, POINTER(c_double))),
    "zro_optim_set_value": (MUST, (c_void_p, c_size_t, c_char_p, c_double)),
    "zro_optim_get_values": (MUST, (c_void_p, c_size_t, POINTER(c_double), c_size_t)),
    "zro_optim_set_values": (MUST, (c_void_p, c_size_t, POINTER(c_double), c_size_t)),
    "zro_optim_slots": (c_size_t, (c_void_p,)),
    "zro_optim_slot_name": (c_char_p, (c_void_p, c_size_t)),
    "zro_optim_slot": (MUST, (c_void_p, c_size_t, c_char_p, POINTER(zro_slot))),
    "zro_optim_set_slot": (MUST, (c_void_p, c_size_t, c_char_p, c_int, c_void_p)),
    "zro_clip_grad_norm": (MUST, (c_void_p, c_double, c_double, POINTER(c_double))),
    "zro_clip_grad_value": (MUST, (c_void_p, c_double)),
    "zro_optim_grad_norm": (MUST, (c_void_p, c_double, c_int, POINTER(c_double))),
    "zro_step_info_init": (None, (POINTER(zro_step_info),)),
    "zro_optim_info": (MUST, (c_void_p, POINTER(zro_step_info))),
    "zro_optim_set_scale": (MUST, (c_void_p, c_double, c_uint32)),
    "zro_optim_consolidate": (MUST, (c_void_p, c_int, POINTER(c_void_p))),
    "zro_optim_consolidate_with_data": (MUST, (c_void_p, c_int, POINTER(c_void_p))),
    "zro_optim_load": (MUST, (c_void_p, c_void_p)),
    "zro_state_broadcast": (MUST, (c_void_p, POINTER(c_void_p), c_int)),
    "zro_state_create": (MUST, (c_char_p, POINTER(c_void_p))),
    "zro_state_destroy": (None, (c_void_p,)),
    "zro_state_add_group": (MUST, (c_void_p, POINTER(zro_value), c_size_t)),
    "zro_state_add_param": (MUST, (c_void_p, POINTER(zro_param))),
    "zro_state_add_slot": (MUST, (c_void_p, c_size_t, c_char_p, c_int, c_void_p, c_size_t)),
    "zro_state_set_value": (MUST, (c_void_p, c_size_t, c_char_p, c_double)),
    "zro_state_add_data": (MUST, (c_void_p, c_size_t, c_void_p)),
    "zro_state_set_number": (MUST, (c_void_p, c_char_p, c_double)),
    "zro_state_get_number": (MUST, (c_void_p, c_char_p, POINTER(c_double))),
    "zro_state_get_progress": (MUST, (c_void_p, POINTER(zro_progress))),
    "zro_state_set_progress": (MUST, (c_void_p, POINTER(zro_progress))),
    "zro_state_rule": (c_char_p, (c_void_p,)),
    "zro_state_groups": (c_size_t, (c_void_p,)),
    "zro_state_params": (c_size_t, (c_void_p,)),
    "zro_state_bytes": (c_uint64, (c_void_p,)),
    "zro_state_group": (MUST, (c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_size_t), POINTER(c_size_t))),
    "zro_state_value": (MUST, (c_void_p, c_size_t, c_size_t, POINTER(zro_value))),
    "zro_state_get_value": (MUST, (c_void_p, c_size_t, c_char_p, POINTER(c_double))),
    "zro_state_param": (MUST, (c_void_p, c_size_t, POINTER(zro_param))),
    "zro_state_slots": (c_size_t, (c_void_p, c_size_t)),
    "zro_state_slot_name": (c_char_p, (c_void_p, c_size_t, c_size_t)),
    "zro_state_slot": (MUST, (c_void_p, c_size_t, c_char_p, POINTER(zro_slot))),
    "zro_state_write": (MUST, (c_void_p, c_char_p)),
    "zro_state_read": (MUST, (c_char_p, POINTER(c_void_p))),
    "zro_state_pack": (MUST, (c_void_p, POINTER(c_void_p), POINTER(c_size_t))),
    "zro_state_unpack": (MUST, (c_void_p, c_size_t, POINTER(c_void_p))),
    "zro_schedule_step_lr": (MUST, (c_void_p, c_uint64, c_double, POINTER(c_void_p))),
    "zro_schedule_multi_step": (MUST, (c_void_p, POINTER(c_uint64), c_size_t, c_double, POINTER(c_void_p))),
    "zro_schedule_exponential": (MUST, (c_void_p, c_double, POINTER(c_void_p))),
    "zro_schedule_polynomial": (MUST, (c_void_p, c_uint64, c_double, POINTER(c_void_p))),
    "zro_schedule_cosine": (MUST, (c_void_p, c_uint64, c_double, POINTER(c_void_p))),
    "zro_schedule_cosine_restarts": (MUST, (c_void_p, c_uint64, c_uint64, c_double, POINTER(c_void_p))),
    "zro_schedule_linear": (MUST, (c_void_p, c_double, c_double, c_uint64, POINTER(c_void_p))),
    "zro_schedule_constant": (MUST, (c_void_p, c_double, c_uint64, POINTER(c_void_p))),
    "zro_one_cycle_config_init": (None, (POINTER(zro_one_cycle_config),)),
    "zro_schedule_one_cycle": (MUST, (c_void_p, POINTER(zro_one_cycle_config), POINTER(c_void_p))),
    "zro_plateau_config_init": (None, (POINTER(zro_plateau_config),)),
    "zro_schedule_plateau": (MUST, (c_void_p, POINTER(zro_plateau_config), POINTER(c_void_p))),
    "zro_schedule_lambda": (MUST, (c_void_p, zro_lr_fn, c_void_p, POINTER(c_void_p))),
    "zro_schedule_chained": (MUST, (POINTER(c_void_p), c_size_t, POINTER(c_void_p))),
    "zro_schedule_sequential": (MUST, (POINTER(c_void_p), c_size_t, POINTER(c_uint64), POINTER(c_void_p))),
    "zro_schedule_step": (MUST, (c_void_p,)),
    "zro_schedule_step_metric": (MUST, (c_void_p, c_double)),
    "zro_schedule_destroy": (None, (c_void_p,)),
    "zro_state_set_schedules": (MUST, (c_void_p, POINTER(c_void_p), c_size_t)),
    "zro_state_schedules": (c_size_t, (c_void_p,)),
    "zro_schedules_load": (MUST, (POINTER(c_void_p), c_size_t, c_void_p)),
    "zro_save_config_init": (None, (POINTER(zro_save_config),)),
    "zro_optim_save": (MUST, (c_void_p, c_char_p, POINTER(zro_save_config))),
    "zro_optim_resume": (MUST, (c_void_p, c_char_p, POINTER(zro_save_config))),
    "zro_lbfgs_config_init": (None, (POINTER(zro_lbfgs_config),)),
    "zro_lbfgs_create": (MUST, (POINTER(zro_param), c_size_t, POINTER(zro_lbfgs_config), POINTER(c_void_p))),
    "zro_lbfgs_step": (MUST, (c_void_p, zro_closure_fn, c_void_p, POINTER(c_double))),
    "zro_lbfgs_evaluations": (c_uint64, (c_void_p,)),
    "zro_lbfgs_iterations": (c_uint64, (c_void_p,)),
    "zro_lbfgs_destroy": (None, (c_void_p,)),
    "zro_trace_begin": (c_uint64, (c_void_p,)),
    "zro_trace_end": (None, (c_void_p, c_uint64, c_char_p)),
    "zro_trace_flush": (MUST, (c_void_p,)),
    "zro_stats_init": (None, (POINTER(zro_stats),)),
    "zro_group_stats": (MUST, (c_void_p, POINTER(zro_stats))),
    "zro_optim_stats": (MUST, (c_void_p, POINTER(zro_stats))),
    "zro_ddp_stats": (MUST, (c_void_p, POINTER(zro_stats))),
}

/* ranks: 1; prints: w = 2.98408 */
/* SNIPPET */

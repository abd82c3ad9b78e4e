/* Runs what the fuzzer runs on the files of folders:  fuzz_replay FOLDER...
 *
 * A file whose name begins with "good" must be accepted and one whose name begins with "bad" refused; others may be either. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

static int begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* 1 if it is as its name says. */
static int replay(const char *folder, const char *name)
{
    char path[4096];
    uint8_t *bytes;
    long n;
    FILE *f;
    int accepted;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "rb");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (n = ftell(f)) < 0) {
        perror(path);
        exit(2);
    }
    rewind(f);
    bytes = malloc(n > 0 ? (size_t)n : 1); /* just as long, so that a sanitizer sees what is read beyond */
    if (bytes == NULL || fread(bytes, 1, (size_t)n, f) != (size_t)n) {
        perror(path);
        exit(2);
    }
    accepted = accepts(bytes, (size_t)n);
    free(bytes);
    fclose(f);
    if (!(accepted ? begins(name, "bad") : begins(name, "good")))
        return 1;
    fprintf(stderr, "%s: %s\n", path, accepted ? "accepted" : "refused");
    return 0;
}

int main(int argc, char **argv)
{
    size_t n = 0, wrong = 0;

    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);

        if (dir == NULL) {
            perror(argv[i]);
            return 2;
        }
        for (struct dirent *e; (e = readdir(dir)) != NULL;)
            if (e->d_name[0] != '.') {
                wrong += !replay(argv[i], e->d_name);
                n++;
            }
        closedir(dir);
    }
    printf("%zu files, %zu wrong\n", n, wrong);
    return n == 0 || wrong > 0;
}

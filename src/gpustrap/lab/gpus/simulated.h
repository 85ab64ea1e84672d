/* What the stand-ins for NVIDIA's libraries share: the state file of the simulated machine, and a GPU that hangs. */
#ifndef LAB_SIMULATED_H
#define LAB_SIMULATED_H
#include <stddef.h>

#ifdef __aarch64__
#define LIBRARIES "/usr/lib/aarch64-linux-gnu/"
#else
#define LIBRARIES "/usr/lib/x86_64-linux-gnu/"
#endif
#define LINE 512

/* What a lookup ends with; the numbers are those that NVML has for the same. A value !N is the code N itself. */
enum { FOUND = 0, ABSENT = 3, TOO_LONG = 7, NO_STATE = 9 };

const char *state_path(void);
/* Copies the value of a key, read anew at every call; index -1 is the machine. */
int lookup(int index, const char *key, char *value, size_t size);
/* The value of a key as a number; `otherwise` where there is none. */
long lookup_number(int index, const char *key, long otherwise);
/* The version of a library, "libcuda.so."; a package's name of it ends with that, and changes when the package does. */
void library_version(const char *library, char *value, size_t size);
/* Comes back when the GPU does not hang any more; of one that is stuck signals wait, too: not even SIGKILL ends a real
 * process there. */
void wait_while_hung(int index, const char *key);
#endif

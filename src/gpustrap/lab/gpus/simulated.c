/* The state file of a simulated machine: key=value lines; a value !N is a return code instead of a value. See state.py.
 */
#include "simulated.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *state_path(void)
{
    const char *path = getenv("LAB_GPU_STATE");
    return path ? path : "/run/lab-gpu/state";
}

int lookup(int index, const char *key, char *value, size_t size)
{
    char line[LINE], wanted[LINE];
    int ret = ABSENT;
    FILE *file = fopen(state_path(), "re");
    size_t length;

    if (!file)
        return NO_STATE;
    if (index < 0)
        length = (size_t)snprintf(wanted, sizeof wanted, "%s=", key);
    else
        length = (size_t)snprintf(wanted, sizeof wanted, "%d.%s=", index, key);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, wanted, length))
            continue;
        line[strcspn(line, "\n")] = 0;
        if (line[length] == '!')
            ret = atoi(line + length + 1);
        else if (strlen(line + length) >= size)
            ret = TOO_LONG;
        else {
            strcpy(value, line + length);
            ret = FOUND;
        }
        break;
    }
    fclose(file);
    return ret;
}

long lookup_number(int index, const char *key, long otherwise)
{
    char value[LINE];
    return lookup(index, key, value, sizeof value) == FOUND ? strtol(value, NULL, 0) : otherwise;
}

void library_version(const char *library, char *value, size_t size)
{
    const char *path = getenv("LAB_GPU_LIBRARY");
    char installed[LINE], target[LINE];
    const char *found;
    ssize_t length;

    lookup(-1, "library", value, size);
    if (!path && getenv("LAB_GPU_STATE"))
        return;
    snprintf(installed, sizeof installed, LIBRARIES "%s1", library);
    length = readlink(path ? path : installed, target, sizeof target - 1);
    if (length <= 0)
        return;
    target[length] = 0;
    found = strstr(target, library);
    if (found)
        found += strlen(library);
    if (found && strchr(found, '.') && strlen(found) < size)
        strcpy(value, found);
}

void wait_while_hung(int index, const char *key)
{
    const struct timespec pause = {0, 200000000};
    char value[LINE];
    sigset_t every, before;

    sigfillset(&every);
    sigprocmask(SIG_SETMASK, NULL, &before);
    while (lookup(index, key, value, sizeof value) == FOUND) {
        if (atoi(value) > 1)
            sigprocmask(SIG_BLOCK, &every, NULL);
        nanosleep(&pause, NULL);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* The part of the stand-in for libnvidia-ml.so.1 that tells how GPUs are connected: NVLink, the fabric, PCI, NUMA. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NVSWITCH = 2, P2P_OK = 0, P2P_CHIPSET = 1, P2P_NOT_SUPPORTED = 5 };
enum { SINGLE = 10, MULTIPLE = 20, HOST_BRIDGE = 30, NODE = 40, SYSTEM = 50 };

/* --- NVLink --- */

static int in_list(const char *list, int wanted)
{
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (atoi(list) == wanted)
            return 1;
    return 0;
}
API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, uint link, uint *active)
{
    char down[LINE];
    uint links = 0, mig = 0;
    nvmlReturn_t ret = number(device, "nvlinks", &links);

    if (ret == SUCCESS && number(device, "mig", &mig) == SUCCESS && mig)
        return NOT_SUPPORTED; /* with MIG a GPU has no peers */
    *active = text(device, "nvlinks_down", down, sizeof down) != SUCCESS || !in_list(down, (int)link);
    return ret == SUCCESS && link >= links ? INVALID_ARGUMENT : ret;
}
API nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, uint link, uint counter, ull *value)
{
    uint active;
    (void)counter;
    *value = 0;
    return nvmlDeviceGetNvLinkState(device, link, &active);
}
API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, uint link, uint *version)
{
    uint active;
    nvmlReturn_t ret = nvmlDeviceGetNvLinkState(device, link, &active);
    return ret == SUCCESS ? number(device, "nvlink_version", version) : ret;
}
API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, uint link, uint capability, uint *has)
{
    uint active;
    *has = capability != 4; /* all but the SLI bridge */
    return nvmlDeviceGetNvLinkState(device, link, &active);
}
API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, uint link, uint *kind)
{
    uint active;
    *kind = NVSWITCH; /* all boards of the lab with NVLink hang on switches */
    return nvmlDeviceGetNvLinkState(device, link, &active);
}

/* Fields about links: how many, how fast; the link is the field's scope. */
nvmlReturn_t link_field(nvmlDevice_t device, uint field, uint link, uint *value)
{
    uint active = 1;
    nvmlReturn_t ret = nvmlDeviceGetNvLinkState(device, field == 91 ? 0 : link, &active);

    if (ret != SUCCESS)
        return ret;
    if (field == 91)
        return number(device, "nvlinks", value);
    if (field == 165)
        return *value = active, SUCCESS;
    if (field == 166)
        return number(device, "nvlink_version", value);
    return active ? number(device, "nvlink_mbps", value) : (*value = 0, SUCCESS);
}

/* --- the fabric --- */

static uint fabric_state(nvmlDevice_t device)
{
    static const char *const names[] = {"Not Supported", "Not Started", "In Progress", "Completed"};
    char words[64];
    uint at;

    if (text(device, "fabric", words, sizeof words) == SUCCESS)
        for (at = 0; at < 4; at++)
            if (!strcmp(words, names[at]))
                return at;
    return 0;
}
typedef struct {
    uint version;
    unsigned char cluster[16];
    uint status, clique, state, health;
    unsigned char summary;
} fabric_t;
API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, fabric_t *fabric)
{
    uint version = fabric->version;
    nvmlReturn_t ret = reach(device);
    if ((version & 0xFFFFFF) > sizeof *fabric)
        return VERSION_MISMATCH;
    memset(fabric, 0, version & 0xFFFFFF);
    fabric->version = version;
    fabric->state = fabric_state(device);
    return ret;
}
typedef struct { unsigned char cluster[16]; uint status, clique, state; } old_fabric_t;
API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, old_fabric_t *fabric)
{
    memset(fabric, 0, sizeof *fabric);
    fabric->state = fabric_state(device);
    return reach(device);
}

/* --- where a GPU sits: its PCI path is the host bridge and the bridges below it --- */

API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t two, uint *level)
{
    char left[LINE], right[LINE];
    int at = 0, shared = 0, first = -1, second = -1;
    nvmlReturn_t ret = text(one, "pci_path", left, sizeof left);

    if (ret == SUCCESS)
        ret = text(two, "pci_path", right, sizeof right);
    if (ret != SUCCESS)
        return ret;
    number(one, "numa", (uint *)&first);
    number(two, "numa", (uint *)&second);
    for (at = 0; left[at] && left[at] == right[at]; at++)
        shared += left[at] == '/'; /* whole steps that both have */
    if (one->index == two->index)
        *level = 0;
    else if (first != second)
        *level = SYSTEM;
    else if (!shared)
        *level = NODE;
    else
        *level = shared == 1 ? HOST_BRIDGE : strchr(left + at, '/') || strchr(right + at, '/') ? MULTIPLE : SINGLE;
    return SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t two, uint kind, uint *status)
{
    char brand[32];
    uint active;
    nvmlReturn_t ret = reach(two), first, second;

    if (ret == SUCCESS)
        ret = text(one, "brand", brand, sizeof brand);
    if (kind == 2) { /* over NVLink */
        first = nvmlDeviceGetNvLinkState(one, 0, &active), second = nvmlDeviceGetNvLinkState(two, 0, &active);
        *status = first == SUCCESS && second == SUCCESS ? P2P_OK : P2P_NOT_SUPPORTED;
    } else
        *status = !strcmp(brand, "GeForce") ? P2P_CHIPSET : P2P_OK;
    return ret;
}

/* Sets the bits of a list such as 0-31,64-95 in a mask of 64-bit words. */
static void set_bits(const char *list, uint words, unsigned long *mask)
{
    unsigned long from, to;
    char *end;

    memset(mask, 0, words * sizeof *mask);
    while (*list) {
        from = to = strtoul(list, &end, 10);
        if (*end == '-')
            to = strtoul(end + 1, &end, 10);
        for (; from <= to && from / 64 < words; from++)
            mask[from / 64] |= 1UL << from % 64;
        list = *end ? end + 1 : end;
    }
}
static nvmlReturn_t affinity(nvmlDevice_t device, const char *key, uint words, unsigned long *mask)
{
    char list[LINE];
    nvmlReturn_t ret = text(device, key, list, sizeof list);
    if (ret == SUCCESS)
        set_bits(list, words, mask);
    return ret;
}
API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, uint words, unsigned long *mask)
{
    return affinity(device, "cpus", words, mask);
}
API nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, uint words, unsigned long *mask, uint scope)
{
    (void)scope;
    return affinity(device, "cpus", words, mask);
}
API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, uint words, unsigned long *mask, uint scope)
{
    (void)scope;
    return affinity(device, "numa", words, mask);
}

/* simulated: stand-in of the gpustrap lab. The section that modinfo reads, and nothing else. */
#define INFO(tag, text) \
    static const char about_##tag[] __attribute__((section(".modinfo"), used, aligned(1))) = #tag "=" text
INFO(license, "@license@");
INFO(version, "@version@");
INFO(description, "simulated: stand-in of the gpustrap lab");
INFO(name, NAME);
INFO(vermagic, KERNEL " SMP preempt mod_unload modversions ");

"""The roles of a site, in the order in which it runs them."""

ROLES: tuple[str, ...] = (
    "ubuntu_server",
    "nvidia_driver",
    "nvidia_fabric_manager",
    "cuda_toolkit",
    "docker",
    "nvidia_container_toolkit",
    "conda",
    "ml_environments",
)

# Planned and locked, so that their variables are reserved; no role of this gpustrap installs them yet.
PENDING_ROLES: tuple[str, ...] = ()

# What feeds something stands before it.
SITE_ORDER: tuple[str, ...] = (
    "ubuntu_server",
    "nvidia_driver",
    "nvidia_fabric_manager",
    "cuda_toolkit",
    "docker",
    "nvidia_container_toolkit",
    "conda",
    "ml_environments",
)

"""The roles gpustrap has, in the order in which a site runs them."""

ROLES: tuple[str, ...] = ("ubuntu_server", "docker", "conda")

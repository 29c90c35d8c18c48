"""How the kubelet gets to know the plugin: it finds the socket, asks who we are, and says whether it takes us."""

import logging
from typing import TYPE_CHECKING

from driver.kubelet.handlers import service, unary
from driver.kubelet.health import VERSIONS
from driver.names import DRIVER
from driver.protos import registration_pb2 as registration

if TYPE_CHECKING:
    from driver.kubelet.handlers import Context, Handler

log = logging.getLogger(__name__)

SUPPORTED = ("v1.DRAPlugin", "v1beta1.DRAPlugin", *(f"{version}.DRAResourceHealth" for version in VERSIONS))
"""As the kubelet spells them, which is not how gRPC does."""


class Registration:
    """Answers for the plugin that serves at ``endpoint``.

    ``error`` is why the kubelet did not take us, empty if it did or has not yet said. It asks again by itself,
    with growing pauses, for as long as the socket is there.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.registered, self.error = False, ""

    def handlers(self) -> "list[Handler]":
        """The one service."""
        methods = {
            "GetInfo": unary(self.info, registration.InfoRequest, registration.PluginInfo),
            "NotifyRegistrationStatus": unary(
                self.notified, registration.RegistrationStatus, registration.RegistrationStatusResponse
            ),
        }
        return [service("pluginregistration.Registration", methods)]

    async def info(self, _request: registration.InfoRequest, _context: "Context") -> registration.PluginInfo:
        """Who we are."""
        return registration.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=self._endpoint, supported_versions=SUPPORTED
        )

    async def notified(
        self, status: registration.RegistrationStatus, _context: "Context"
    ) -> registration.RegistrationStatusResponse:
        """Whether the kubelet takes us."""
        self.registered, self.error = status.plugin_registered, status.error
        if self.registered:
            log.info("the kubelet has registered the plugin")
        else:
            log.warning("the kubelet does not register the plugin: %s; it will try again", self.error[:1000])
        return registration.RegistrationStatusResponse()

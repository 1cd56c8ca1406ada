"""The protocol as pygls speaks it, with an answer to requests that it would pass over in silence."""

from __future__ import annotations

from typing import Any

from lsprotocol import types as t
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.json_rpc import JsonRPCNotification, RPCMessage

#: A notification that nobody listens to.
_NOTHING = JsonRPCNotification(jsonrpc="2.0", method="$/nothing", params=None)


class Protocol(LanguageServerProtocol):
    """Every request gets an answer: one with wrong parameters, one before the beginning, one after the end."""

    _has_begun = False

    def structure_message(self, data: dict[str, Any]) -> Any:
        """A message out of its JSON; one that is no request and makes no sense raises `JsonRpcException`."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            number, method = data.get("id"), data.get("method")
            if method is None or not isinstance(number, (int, str)):
                raise
            if isinstance(method, str) and self.get_message_type(method) is None:
                self._refuse(number, t.ErrorCodes.MethodNotFound, f"there is no method {method}")
            else:
                self._send_response(number, error=error.to_response_error())
            return _NOTHING

    def handle_message(self, message: RPCMessage) -> None:
        """Do what a message asks for, if it is the time for that."""
        method = getattr(message, "method", None)
        number = getattr(message, "id", None)
        if method == t.INITIALIZE and self._has_begun and number is not None:
            self._refuse(number, t.ErrorCodes.InvalidRequest, "the server has begun before")
            return
        if method is not None and method not in (t.EXIT, t.INITIALIZE):
            if self._shutdown and number is not None:
                self._refuse(number, t.ErrorCodes.InvalidRequest, "the server has been shut down")
                return
            if not self._has_begun:
                if number is not None:
                    self._refuse(number, t.ErrorCodes.ServerNotInitialized, "nobody has said hello")
                return
        self._has_begun = self._has_begun or method == t.INITIALIZE
        super().handle_message(message)

    def _refuse(self, number: int | str, code: t.ErrorCodes, why: str) -> None:
        self._send_response(number, error=t.ResponseError(code.value, why))

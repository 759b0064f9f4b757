"""Conformance suite for bridges: `python -m pegasus.testing bridge COMMAND` proves what a bridge does with messages when it fails.

* `steps`: `Step`, the points at which a bridge is disturbed, and `StepPoints`, which does it.
* `gateway`: `BridgeGateway`, the gateway's side. It speaks the frames of pegasus.v1 and reads them as strictly as the gateway does.
* `service`: `BridgeService`, the side of the chat service. A fake of another service begins with it.
* `plain`: a plain messenger, the service of `examples/plain_bridge.py`.
* `discord`: Discord, the service of `examples/discord_bridge.py`.
* `matrix`: a homeserver, the service of `examples/matrix_bridge.py`.
* `folder`: the service of `examples/folder_bridge.sh`, a folder.
* `mail`: a mail server. `fake_mail` is one, `debian_mail` runs Dovecot and Postfix; `mail_proxy` stands before either, and finds the
  steps in its protocols.
* `verdict`: `DeliveryClass`, the classes, and the class that follows from what arrived.
* `suite`: `examine_bridge`, one run from the first start to the class.
* `command`: the command line.
"""

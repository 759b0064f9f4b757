"""SMS by Twilio: the adapter of `[channels.sms]` (https://www.twilio.com/docs/messaging/api/message-resource).

* `webhook`: the check that a request comes from Twilio, and the message in it.
* `api`: calls of the Messages API, with its refusals as exceptions; files that people sent.
* `file_links`: files that go out, reached by links.
* `pieces`: a reply as messages of plain text, and the alphabet of SMS.
* `adapter`: the actor: webhook, replies, files both ways.
"""

from pegasus.channels.sms.adapter import SmsAdapter

__all__ = ["SmsAdapter"]

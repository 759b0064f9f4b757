"""SMS by Twilio: the adapter of `[channels.sms]` (https://www.twilio.com/docs/messaging/api/message-resource).

* `alphabet`: the alphabet of SMS (GSM-7), and texts that fit into it.
* `signature`: the check that a request comes from Twilio.
* `inbound`: from the form of a webhook to a message for the agent.
* `api`: calls of the Messages API, with its refusals as exceptions; files that people sent.
* `file_links`: files that go out, reached by links.
* `adapter`: the actor: webhook, replies, files both ways.
"""

from pegasus.channels.sms.adapter import SmsAdapter

__all__ = ["SmsAdapter"]

"""Fakes of chat services: real servers on loopback for their official clients, and in memory for virtual time.

* `server`: `FakeService`, which all of them have in common; a fake of another service begins with it.
* `telegram`: `TelegramServer`, with `telegram_html`, which reads texts as strictly as Telegram does.
* `slack_server`: `open_slack`, a workspace of Slack with Web API, Socket Mode and signed events. `slack_workspace` has its state,
  `slack_calls` faults, `slack_events` what people write and click.
* `twilio`: a fake of Twilio.
"""

-- +goose Up

-- Written by package webhook: webhooks that have something new to be sent, and are yet to be
-- given their turn. A row of its own, so that whoever causes an event never waits for those
-- who send.
CREATE TABLE webhook_calls (
  id    TEXT PRIMARY KEY,
  hooks TEXT NOT NULL -- ids separated by spaces
);

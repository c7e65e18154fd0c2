-- +goose Up

-- One job fetches what all waiting events are about. Those that come after it began belong to the next round, which has a job of its own.
ALTER TABLE stripe_accounts ADD COLUMN round BIGINT NOT NULL DEFAULT 0;
ALTER TABLE stripe_events ADD COLUMN failures BIGINT NOT NULL DEFAULT 0;
ALTER TABLE stripe_events ADD COLUMN retry_at BIGINT NOT NULL DEFAULT 0;

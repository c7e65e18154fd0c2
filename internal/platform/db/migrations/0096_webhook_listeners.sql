-- +goose Up

-- Deliveries of listeners have states of their own: 'offered', and 'fetched' with their number in claims.
CREATE INDEX webhook_deliveries_offered ON webhook_deliveries (hook_id, state, claims, id) WHERE state IN ('offered', 'fetched');
CREATE INDEX webhooks_listening ON webhooks (expires_at) WHERE expires_at > 0;

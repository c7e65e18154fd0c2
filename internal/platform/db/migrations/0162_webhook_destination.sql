-- +goose Up

-- Written by package webhook: see 0030. A destination is a host, whatever its port; those of
-- older rows are worked out again.
UPDATE webhooks SET host = '' WHERE host LIKE '%:%';

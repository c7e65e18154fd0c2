-- +goose Up

-- Written by package deploy: the place of a deployment that waits for a build slot, 1 being
-- next; 0 while it does not wait for one.
ALTER TABLE deployments ADD COLUMN place BIGINT NOT NULL DEFAULT 0;

-- +goose Up
-- Whether a member who may not read variables asked for the preview: it sees only those that are for previews alone.
ALTER TABLE deployments ADD COLUMN limited_env BOOLEAN NOT NULL DEFAULT FALSE;

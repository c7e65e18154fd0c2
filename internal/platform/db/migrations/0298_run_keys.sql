-- +goose Up

-- The API keys that workflows of GitHub Actions got for a site.
CREATE VIEW run_keys AS SELECT site_id, key_id FROM action_runs WHERE key_id <> '';

-- +goose Up

-- How sites' programs are run: package app compares it with what they were started with.
CREATE VIEW run_settings AS SELECT id AS site_id, run FROM sites;

-- +goose Up

-- Written by package backup: see 0086.
ALTER TABLE backups ADD COLUMN answer TEXT NOT NULL DEFAULT '';   -- how the site answered from the restored copy, in words

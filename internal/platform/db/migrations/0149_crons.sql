-- +goose Up

-- How the last run of a scheduled command ended.
ALTER TABLE app_tasks ADD COLUMN last_at BIGINT NOT NULL DEFAULT 0;      -- when it began; 0: it has not run
ALTER TABLE app_tasks ADD COLUMN last_exit BIGINT NOT NULL DEFAULT -1;   -- its exit code; below 0: it runs, or was interrupted

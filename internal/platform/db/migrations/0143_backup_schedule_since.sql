-- +goose Up

-- Written by package backup: see 0086.
ALTER TABLE backup_schedules ADD COLUMN since BIGINT NOT NULL DEFAULT 0;   -- when every was set as it is; 0: before this was noted

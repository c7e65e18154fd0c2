-- +goose Up

-- Written by package backup: see 0086. A list of sites reads its owner's schedules.
CREATE INDEX backup_schedules_of_owner ON backup_schedules (owner_id);

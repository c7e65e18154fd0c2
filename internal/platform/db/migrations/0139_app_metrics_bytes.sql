-- +goose Up

-- Written by package figures: bytes of the bodies of answers.
ALTER TABLE app_metrics ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;

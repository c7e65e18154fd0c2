-- +goose Up

-- Written by package wordpress. When the site was last transferred to another owner; 0: never.
ALTER TABLE wordpress_sites ADD COLUMN moved_at BIGINT NOT NULL DEFAULT 0;

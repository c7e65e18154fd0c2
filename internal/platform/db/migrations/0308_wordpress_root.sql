-- +goose Up

-- root_files holds the texts of files at a WordPress site's root by their paths, page_cache what its owner keeps from the page cache;
-- both are JSON, empty for none.
ALTER TABLE wordpress_sites ADD COLUMN root_files TEXT NOT NULL DEFAULT '';
ALTER TABLE wordpress_sites ADD COLUMN page_cache TEXT NOT NULL DEFAULT '';

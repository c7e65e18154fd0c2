-- +goose Up

-- As before, in the SQL of SQLite 3.40: Debian 12's sqlite3 couldn't open a database in which an aggregate has an ORDER BY.
DROP VIEW memberships;
CREATE VIEW memberships AS
  SELECT id AS user_id, owner_id, '' AS team_id, '' AS slug, 'owner' AS role, '' AS sites, FALSE AS blocked,
         suspended_at, created_at AS joined_at, FALSE AS sso_required, FALSE AS sso_linked, FALSE AS break_glass
  FROM users
  UNION ALL
  SELECT m.user_id, m.owner_id, t.id, t.slug, m.role,
         COALESCE((SELECT string_agg(r.role, ' ')
                   FROM (SELECT s.site_id || ':' || s.role AS role FROM site_members s
                         WHERE s.owner_id = m.owner_id AND s.user_id = m.user_id ORDER BY s.site_id) AS r), ''),
         t.require_2fa AND NOT EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = m.user_id AND f.confirmed)
                       AND NOT EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = m.user_id),
         t.suspended_at, m.joined_at, t.require_sso,
         EXISTS (SELECT 1 FROM team_identities i WHERE i.owner_id = m.owner_id AND i.user_id = m.user_id),
         m.break_glass AND m.role = 'owner'
           AND (EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = m.user_id AND f.confirmed)
                OR EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = m.user_id))
  FROM team_members m JOIN teams t ON t.owner_id = m.owner_id
  WHERE t.deleted_at = 0;

-- +goose Up

-- As before, without groups and DISTINCT: SQLite read everybody's identities for each member or user that was looked up.
DROP VIEW linked_users;
CREATE VIEW linked_users AS SELECT user_id FROM sso_identities;
DROP VIEW memberships;
DROP VIEW team_identities;
CREATE VIEW team_identities AS SELECT owner_id, user_id, used_at FROM sso_identities WHERE owner_id <> '';
CREATE VIEW memberships AS
  SELECT id AS user_id, owner_id, '' AS team_id, '' AS slug, 'owner' AS role, '' AS sites, FALSE AS blocked,
         suspended_at, created_at AS joined_at, FALSE AS sso_required, FALSE AS sso_linked, FALSE AS break_glass
  FROM users
  UNION ALL
  SELECT m.user_id, m.owner_id, t.id, t.slug, m.role,
         COALESCE((SELECT string_agg(s.site_id || ':' || s.role, ' ' ORDER BY s.site_id)
                   FROM site_members s WHERE s.owner_id = m.owner_id AND s.user_id = m.user_id), ''),
         t.require_2fa AND NOT EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = m.user_id AND f.confirmed)
                       AND NOT EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = m.user_id),
         t.suspended_at, m.joined_at, t.require_sso,
         EXISTS (SELECT 1 FROM team_identities i WHERE i.owner_id = m.owner_id AND i.user_id = m.user_id),
         m.break_glass AND m.role = 'owner'
           AND (EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = m.user_id AND f.confirmed)
                OR EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = m.user_id))
  FROM team_members m JOIN teams t ON t.owner_id = m.owner_id
  WHERE t.deleted_at = 0;

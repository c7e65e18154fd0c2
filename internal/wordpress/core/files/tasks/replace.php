<?php
// Replaces text in all tables of the site, or in those that "tables" names, a few seconds at a time: what is asked for again
// with the same "run" goes on where it was. Changed rows and the place are one transaction.
require __DIR__ . '/boot.php';
require __DIR__ . '/serialized.php';
define('WP_INSTALLING', true); // no plugin runs
wordpress();
global $wpdb;
$db = $wpdb->dbh;
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$q = fn(string $name) => '`' . str_replace('`', '``', $name) . '`';
$pairs = array_values(array_filter($in['pairs'], fn($p) => $p[0] !== '' && $p[0] !== $p[1]));
$swap = !empty($in['addresses']) ? addresses($pairs) : texts($pairs);
// What rows are found by: of addresses their hosts, since each has many forms.
$look = array_column($pairs, 0);
if (!empty($in['addresses'])) {
	preg_match_all('~^//([^/:\n]+)|(wp-content)$~m', implode("\n", $look), $m);
	$look = array_unique(array_filter(array_merge($m[1], $m[2])));
}
$dry = !empty($in['dry']);
$place = $in['place'] ?? null;
$option = $wpdb->options;
if (!$dry) {
	$stored = $wpdb->get_var("SELECT option_value FROM {$option} WHERE option_name = 'slipway_replace'");
	$stored = $stored ? json_decode($stored, true) : null;
	if ($stored && $stored['run'] === $in['run']) {
		$place = $stored['place'];
	}
}
$place = $place ?: ['table' => '', 'after' => null, 'rows' => 0, 'replacements' => 0, 'tables' => [], 'skipped' => []];
$until = microtime(true) + 5;

// note stores the place with what was changed.
function note(): void {
	global $db, $in, $place, $option;
	$st = $db->prepare("INSERT INTO {$option} (option_name, option_value, autoload) VALUES ('slipway_replace', ?, 'no') ON DUPLICATE KEY UPDATE option_value = VALUES(option_value)");
	$st->execute([json_encode(['run' => $in['run'], 'place' => $place], JSON_INVALID_UTF8_SUBSTITUTE)]);
}

// Replaces the values of a table without a primary key, all of them in one transaction. It returns false where they are too many.
function replaceValues(string $table, array $columns): bool {
	global $db, $q, $look, $swap, $place, $dry;
	$most = 2000;
	$new = [];
	foreach ($columns as $c) {
		$like = implode(' OR ', array_map(fn($from) => $q($c) . " LIKE '%" . $db->real_escape_string(addcslashes($from, '\\%_')) . "%'", $look));
		$found = $db->query("SELECT MD5({$q($c)}) AS digest, MIN({$q($c)}) AS value, COUNT(*) AS n FROM {$q($table)} WHERE $like GROUP BY digest LIMIT " . ($most + 1))->fetch_all(MYSQLI_ASSOC);
		if (count($found) > $most) {
			return false;
		}
		foreach ($found as $row) {
			$n = 0;
			$value = replaced($row['value'], $swap, $n);
			if ($n > 0 && $value !== $row['value']) {
				$new[] = [$c, $row['digest'], $value];
				$place['replacements'] += $n * $row['n'];
				$place['rows'] += $row['n'];
				$place['tables'][$table] = ($place['tables'][$table] ?? 0) + $row['n'];
			}
		}
	}
	if ($dry) {
		return true;
	}
	$db->begin_transaction();
	foreach ($new as [$c, $digest, $value]) {
		$st = $db->prepare("UPDATE {$q($table)} SET {$q($c)} = ? WHERE MD5({$q($c)}) = ?");
		$st->execute([$value, $digest]);
	}
	$place['after'] = ['done'];
	note();
	$db->commit();
	return true;
}

$tables = $wpdb->get_col("SHOW TABLES LIKE '" . $wpdb->esc_like($wpdb->prefix) . "%'");
if (!empty($in['tables'])) {
	$tables = array_intersect($tables, $in['tables']);
}
sort($tables, SORT_STRING);
$done = 0;
foreach ($tables as $table) {
	$done++;
	if (strcmp($table, $place['table']) < 0) {
		continue;
	}
	if ($table !== $place['table']) {
		$place['table'] = $table;
		$place['after'] = null;
	}
	$columns = [];
	$keys = [];
	foreach ($db->query('SHOW COLUMNS FROM ' . $q($table))->fetch_all(MYSQLI_ASSOC) as $c) {
		if ($c['Key'] === 'PRI') {
			$keys[] = $c['Field'];
		}
		if (preg_match('/char|text|json/i', $c['Type']) && !($c['Field'] === 'guid' && preg_match('/^' . preg_quote($wpdb->base_prefix, '/') . '(\d+_)?posts$/', $table)) && !($table === $wpdb->users && $c['Field'] === 'user_pass')) {
			$columns[] = $c['Field'];
		}
	}
	$columns = array_values(array_diff($columns, $keys));
	if (!$columns || !$pairs) {
		continue;
	}
	if (!$keys) { // its rows can't be told apart, but their values can
		if ($place['after'] === null && !replaceValues($table, $columns) && !in_array($table, $place['skipped'], true)) {
			$place['skipped'][] = $table;
		}
		$place['after'] = null;
		$place['table'] = $table . "\0";
		continue;
	}
	$contains = [];
	foreach ($columns as $c) {
		foreach ($look as $from) {
			$contains[] = $q($c) . " LIKE '%" . $db->real_escape_string(addcslashes($from, '\\%_')) . "%'";
		}
	}
	$key = implode(', ', array_map($q, $keys));
	while (true) {
		$where = '(' . implode(' OR ', $contains) . ')';
		if ($table === $option) {
			$where .= " AND option_name NOT LIKE 'slipway\\_%'";
		}
		if ($place['after'] !== null) {
			$where .= " AND ($key) > (" . implode(', ', array_map(fn($v) => "'" . $db->real_escape_string($v) . "'", $place['after'])) . ')';
		}
		$rows = $db->query("SELECT $key, " . implode(', ', array_map($q, $columns)) . ' FROM ' . $q($table) . " WHERE $where ORDER BY $key LIMIT 100")->fetch_all(MYSQLI_ASSOC);
		if (!$rows) {
			break;
		}
		if (!$dry) {
			$db->begin_transaction();
		}
		foreach ($rows as $row) {
			$set = [];
			foreach ($columns as $c) {
				$n = 0;
				$new = $row[$c] === null ? null : replaced($row[$c], $swap, $n);
				if ($n > 0 && $new !== $row[$c]) {
					$set[$c] = $new;
					$place['replacements'] += $n;
				}
			}
			$place['after'] = array_map('strval', array_intersect_key($row, array_flip($keys)));
			$place['after'] = array_map(fn($k) => $place['after'][$k], $keys);
			if (!$set) {
				continue;
			}
			$place['rows']++;
			$place['tables'][$table] = ($place['tables'][$table] ?? 0) + 1;
			if (!$dry) {
				$st = $db->prepare('UPDATE ' . $q($table) . ' SET ' . implode(', ', array_map(fn($c) => $q($c) . ' = ?', array_keys($set)))
					. ' WHERE ' . implode(' AND ', array_map(fn($k) => $q($k) . ' = ?', $keys)));
				$st->execute([...array_values($set), ...$place['after']]);
			}
		}
		if (!$dry) {
			note();
			$db->commit();
		}
		if (microtime(true) > $until) {
			answer(['done' => false, 'place' => $place, 'progress' => $done / max(1, count($tables))]);
		}
	}
	$place['after'] = null;
	$place['table'] = $table . "\0";
}
if (!$dry) {
	wp_cache_flush();
	header('X-Slipway-Purge: *');
}
$place['tables'] = (object) $place['tables'];
answer(['done' => true, 'place' => $place, 'progress' => 1]);

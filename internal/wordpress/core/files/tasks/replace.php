<?php
// Replaces text in all tables of the site, a few seconds at a time: what is asked for again
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

$tables = $wpdb->get_col("SHOW TABLES LIKE '" . $wpdb->esc_like($wpdb->prefix) . "%'");
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
		if (preg_match('/char|text|json/i', $c['Type']) && !($table === $wpdb->posts && $c['Field'] === 'guid') && !($table === $wpdb->users && $c['Field'] === 'user_pass')) {
			$columns[] = $c['Field'];
		}
	}
	$columns = array_values(array_diff($columns, $keys));
	if (!$columns || !$pairs) {
		continue;
	}
	if (!$keys) {
		if (!in_array($table, $place['skipped'], true)) {
			$place['skipped'][] = $table; // its rows can't be told apart
		}
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
			$st = $db->prepare("INSERT INTO {$option} (option_name, option_value, autoload) VALUES ('slipway_replace', ?, 'no') ON DUPLICATE KEY UPDATE option_value = VALUES(option_value)");
			$st->execute([json_encode(['run' => $in['run'], 'place' => $place], JSON_INVALID_UTF8_SUBSTITUTE)]);
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

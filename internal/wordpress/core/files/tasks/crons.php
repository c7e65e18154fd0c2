<?php
// The scheduled events of the site.
require __DIR__ . '/boot.php';
wordpress();
$list = [];
foreach (_get_cron_array() ?: [] as $time => $hooks) {
	foreach (is_array($hooks) ? $hooks : [] as $hook => $events) {
		foreach ($events as $event) {
			$list[] = ['hook' => (string) $hook, 'schedule' => $event['schedule'] ?: null, 'every' => (int) ($event['interval'] ?? 0), 'next' => (int) $time];
		}
	}
}
answer(['events' => array_slice($list, 0, 500)]);

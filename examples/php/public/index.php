<?php

require __DIR__ . '/../vendor/autoload.php';

$tide = Harbor\Tide::at(time());
?>
<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width">
<title>Harbor</title>
<style>
  body { margin: 0; padding: 5rem 8vw; font: 1.25rem/1.6 system-ui, sans-serif; color: #12303b; background: #f7f2ea }
  h1 { margin: 0 0 1rem; font: bold 4rem/1.1 Georgia, serif }
</style>
<h1>The tide is <?= htmlspecialchars($tide) ?>.</h1>
<p>PHP <?= PHP_VERSION ?> answered <?= htmlspecialchars($_SERVER['REQUEST_URI']) ?>.</p>

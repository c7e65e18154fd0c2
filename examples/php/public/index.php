<?php

require __DIR__ . '/../vendor/autoload.php';

$tide = Harbor\Tide::at(time());
?>
<!doctype html>
<html lang="en">
<title>Harbor</title>
<h1>The tide is <?= htmlspecialchars($tide) ?>.</h1>
<p>PHP <?= PHP_VERSION ?> answered <?= htmlspecialchars($_SERVER['REQUEST_URI']) ?>.</p>

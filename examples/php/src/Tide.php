<?php

namespace Harbor;

/** Tide turns every six hours. */
final class Tide
{
    public static function at(int $time): string
    {
        return intdiv($time, 6 * 3600) % 2 === 0 ? 'rising' : 'falling';
    }
}

#!/usr/bin/env node
const http = require('node:http')
const port = process.argv[process.argv.indexOf('--listen') + 1]
http.createServer((req, res) => res.end(`procfile one for ${new URL(req.url, 'http://x').searchParams.get('name')}`)).listen(port)

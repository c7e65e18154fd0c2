const express = require('express')
const mysql = require('mysql2/promise')

const app = express()
const address = process.env.DATABASE_URL
const pool = address && mysql.createPool(address)

const page = (text) => `<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width">
<title>Harbor log</title>
<style>
  body { margin: 0; padding: 5rem 8vw; font: 1.25rem/1.6 system-ui, sans-serif; color: #12303b; background: #f7f2ea }
  h1 { margin: 0 0 1rem; font: bold 4rem/1.1 Georgia, serif }
</style>
<h1>Harbor log</h1>
<p>${text}</p>`

async function arrivals() {
  await pool.query('CREATE TABLE IF NOT EXISTS arrivals (id INT AUTO_INCREMENT PRIMARY KEY, at TIMESTAMP DEFAULT NOW())')
  await pool.query('INSERT INTO arrivals () VALUES ()')
  const [[{ n }]] = await pool.query('SELECT COUNT(*) AS n FROM arrivals')
  return n
}

app.get('/', async (request, response) => {
  if (!pool) return response.send(page('Create a database for this site, then restart it.'))
  response.send(page(`Arrival number ${await arrivals()}.`))
})

app.listen(process.env.PORT)

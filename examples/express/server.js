const express = require('express')
const mysql = require('mysql2/promise')

const app = express()
const address = process.env.DATABASE_URL
const pool = address && mysql.createPool(address)

async function arrivals() {
  await pool.query('CREATE TABLE IF NOT EXISTS arrivals (id INT AUTO_INCREMENT PRIMARY KEY, at TIMESTAMP DEFAULT NOW())')
  await pool.query('INSERT INTO arrivals () VALUES ()')
  const [[{ n }]] = await pool.query('SELECT COUNT(*) AS n FROM arrivals')
  return n
}

app.get('/', async (request, response) => {
  if (!pool) return response.send('<h1>Harbor log</h1><p>Create a database for this site, then restart it.</p>')
  response.send(`<h1>Harbor log</h1><p>Arrival number ${await arrivals()}.</p>`)
})

app.listen(process.env.PORT)

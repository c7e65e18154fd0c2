const express = require('express')
const app = express()
app.set('trust proxy', true)
const version = 'one'
app.get('/', (req, res) => res.send(`express ${version} for ${req.protocol}://${req.host} at ${req.ip}`))
app.post('/sum', express.json(), (req, res) => res.json({ sum: req.body.reduce((a, b) => a + b, 0) }))
app.get('/crash', () => process.nextTick(() => { throw new Error('crashed on purpose') }))
app.get('/oom', () => {
  const all = []
  setInterval(() => all.push(Buffer.alloc(16 << 20, 1)), 1)
})
app.get('/events', (req, res) => {
  res.set('Content-Type', 'text/event-stream').flushHeaders()
  let n = 0
  const timer = setInterval(() => res.write(`data: ${n++}\n\n`), 100)
  res.on('close', () => clearInterval(timer))
})
app.listen(process.env.PORT)

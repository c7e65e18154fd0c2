import Fastify from 'fastify'
const app = Fastify({ trustProxy: true })
app.get('/', async req => `fastify one for ${req.hostname} at ${req.ip}`)
app.get('/stream', async (req, reply) => {
  const { Readable } = await import('node:stream')
  return reply.type('text/plain').send(Readable.from(['a', 'b', 'c']))
})
await app.listen({ port: Number(process.env.PORT), host: process.env.HOST })

import { serve } from '@hono/node-server'
import { Hono } from 'hono'

const app = new Hono()
app.get('/', (c) => c.text(`hono one for ${c.req.query('name')}`))
serve({ fetch: app.fetch, port: Number(process.env.PORT) })

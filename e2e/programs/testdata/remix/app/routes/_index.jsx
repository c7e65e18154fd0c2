import { useLoaderData } from '@remix-run/react'

export const loader = ({ request }) => ({ name: new URL(request.url).searchParams.get('name') })

export default function Home() {
  return <h1>{`remix one for ${useLoaderData().name}`}</h1>
}

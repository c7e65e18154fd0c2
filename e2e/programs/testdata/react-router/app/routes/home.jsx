export const loader = ({ request }) => ({ name: new URL(request.url).searchParams.get('name') })

export default function Home({ loaderData }) {
  return <h1>{`react-router one for ${loaderData.name}`}</h1>
}

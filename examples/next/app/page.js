export const dynamic = 'force-dynamic'

export default async function Page({ searchParams }) {
  const { ship } = await searchParams
  return <h1>{`${ship ?? 'Nobody'} enters the harbor`}</h1>
}

export const dynamic = 'force-dynamic'
export default async function Page({ searchParams }) {
  const { name } = await searchParams
  return <h1>next one for {name ?? 'nobody'}</h1>
}

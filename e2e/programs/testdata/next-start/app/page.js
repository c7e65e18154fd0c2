export default async function Page({ searchParams }) {
  const { name } = await searchParams
  return <h1>{`next-start one for ${name}`}</h1>
}

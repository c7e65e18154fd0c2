export default function Page() {
  return <h1>Exported by Next</h1>
}

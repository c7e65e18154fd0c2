export default function About() {
  return <h1>All about Next</h1>
}

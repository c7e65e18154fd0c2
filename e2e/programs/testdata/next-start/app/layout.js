export const metadata = { title: 'Next export' }

export default function Layout({ children }) {
  return <html lang="en"><body>{children}</body></html>
}

import './harbor.css'

export const metadata = { title: 'Harbor app' }

export default function Layout({ children }) {
  return <html lang="en"><body>{children}</body></html>
}

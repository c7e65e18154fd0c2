import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'

function App() {
  return <h1>Rendered by React: {import.meta.env.VITE_GREETING ?? 'no greeting'}</h1>
}

createRoot(document.getElementById('root')).render(<StrictMode><App /></StrictMode>)
